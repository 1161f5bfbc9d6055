"""Rules of PodGroup."""

from trainyard.kinds.shared.scheduling import check as check
