"""Which way a copy goes and what memory it touches: every generation of traces names that differently."""

from __future__ import annotations

import re

UPLOAD = re.compile(r"HtoD|Host -> Device|HostToDevice", re.IGNORECASE)
DOWNLOAD = re.compile(r"DtoH|Device -> (?:Host|Pageable|Pinned)|DeviceToHost", re.IGNORECASE)
BETWEEN_DEVICES = re.compile(r"PtoP|peer", re.IGNORECASE)
TELLS_MEMORY = re.compile(r"pageable|pinned", re.IGNORECASE)  # ROCm and old traces do not
PAGEABLE = re.compile(r"pageable", re.IGNORECASE)  # ordinary memory: the host copies it itself and waits
