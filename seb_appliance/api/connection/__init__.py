"""HTTP/1.1 connections: their limits, and the fast lane that answers plain requests itself."""
