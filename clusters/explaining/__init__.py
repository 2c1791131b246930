"""Pure: evidence of why a workload waits, in the names that a reader may see, as sentences.

``evidence`` reads what the engine's shift stored, ``names`` says what a reader may call others,
``sentence`` makes the one sentence, ``findings`` the lines behind it, ``answers`` reads what-if.
No Django, no clock, no I/O. Source: spec/features.md section 3; ARCHITECTURE, "What an owner sees
of others".
"""

from __future__ import annotations
