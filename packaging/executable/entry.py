"""Where the frozen program begins."""

import sys

from appliance.__main__ import main

sys.exit(main())
