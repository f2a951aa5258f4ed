"""Control access to the service: users, sessions and API tokens, the role each route requires, and the login pages."""
