"""HTTP/1.1 connections, the fast lane, authentication, bodies."""
