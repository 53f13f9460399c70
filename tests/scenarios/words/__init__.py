"""What a line of a story may say, besides what it may see (`sights.py`).

The first lines of a story may set the stage: `5 replicas`, `4 clients`. Everything after them
happens on a group that has started, with its clients registered and their room made.
"""

from tests.scenarios.story import Vocabulary
from tests.scenarios.words import clients, disks, links, members, processes, time
from tests.scenarios.words.setting import words as setting

# Of two patterns that fit a line the first one is meant.
words = Vocabulary.of(*(room.words for room in (time, clients, members, processes, links, disks)))

__all__ = ["setting", "words"]
