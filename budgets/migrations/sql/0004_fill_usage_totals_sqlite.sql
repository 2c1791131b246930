INSERT INTO budgets_platformhour
  (hour, flavor_id, committed, committed_used, burst, borrowed, lent, idle, pending)
SELECT hour, flavor_id, sum(committed), sum(committed_used), sum(burst), sum(borrowed),
       sum(lent), sum(idle), sum(pending)
  FROM budgets_usagerecord
 GROUP BY hour, flavor_id;

INSERT INTO budgets_accounthour
  (hour, account_id, flavor_id, committed, committed_used, burst, borrowed, lent, idle, pending)
SELECT u.hour, w.account_id, u.flavor_id, sum(u.committed), sum(u.committed_used), sum(u.burst),
       sum(u.borrowed), sum(u.lent), sum(u.idle), sum(u.pending)
  FROM budgets_usagerecord AS u
  JOIN budgets_workspace AS w ON w.id = u.workspace_id
 GROUP BY u.hour, w.account_id, u.flavor_id;

INSERT INTO budgets_workspaceday
  (day, workspace_id, flavor_id, committed, committed_used, burst, borrowed, lent, idle, pending)
SELECT date(hour), workspace_id, flavor_id, sum(committed),
       sum(committed_used), sum(burst), sum(borrowed), sum(lent), sum(idle), sum(pending)
  FROM budgets_usagerecord
 GROUP BY 1, workspace_id, flavor_id;

INSERT INTO budgets_clusterhour (hour, account_id, cluster, flavor, committed_used, burst)
SELECT u.hour, w.account_id, u.cluster, u.flavor, sum(u.committed_used), sum(u.burst)
  FROM budgets_workloadusage AS u
  JOIN budgets_workspace AS w ON w.id = u.workspace_id
 GROUP BY u.hour, w.account_id, u.cluster, u.flavor;
