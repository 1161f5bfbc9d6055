"""Rules of Queue."""

from trainyard.kinds.shared.scheduling import check as check
