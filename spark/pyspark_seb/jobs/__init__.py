"""Jobs that are ready to run: `python -m pyspark_seb.jobs` lists them."""
