"""The OpenAPI document, and the page that shows it: a file for each part of the API."""
