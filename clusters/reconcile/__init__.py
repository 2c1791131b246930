"""The shell of enforcement: reads state, calls the core, writes state. One body per role."""
