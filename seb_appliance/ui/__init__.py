"""The admin page: what an operator does, in a browser. CONTRIBUTING.md has the pattern.

One file per page: its routes, and the view model that its template shows. A route enters
(`ui.enter`, or `ui.change` for what changes something), asks the broker, and answers with
`ui.page`. It sees the broker only, as the API does; what else it shows comes in through UiOptions.
"""
