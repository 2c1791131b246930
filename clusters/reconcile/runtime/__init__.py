"""One controller for all roles, in the words of controller-runtime and client-go."""
