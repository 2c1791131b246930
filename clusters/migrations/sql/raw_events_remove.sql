-- Each function goes with the trigger that calls it.
DROP FUNCTION clusters_refuse_change(), clusters_refuse_loss() CASCADE;
