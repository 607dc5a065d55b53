"""Requests and answers as bytes: parameters, headers, JSON, CSV, problems."""
