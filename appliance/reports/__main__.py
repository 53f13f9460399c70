"""What `spark-submit` runs, with the archive of the reports beside it as --py-files."""

import sys

from appliance.reports.main import main

sys.exit(main(sys.argv[1:]))
