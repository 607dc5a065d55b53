"""The data files and the metadata of lake tables: state in, bytes out."""
