"""Rules of Queue."""

from trainyard.kinds.shared.scheduling.scheduling_object import check as check
