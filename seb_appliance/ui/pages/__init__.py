"""The pages of the admin page: routes and view model of each."""
