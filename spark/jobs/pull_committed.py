"""The earlier name of the job pull, for crontabs: python -m pyspark_seb.jobs.pull."""

import sys

from pyspark_seb.jobs.pull import JOB

if __name__ == "__main__":
    sys.exit(JOB.main())
