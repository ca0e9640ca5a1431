"""Why a backup or a restore did not happen."""


class BackupFailed(Exception):
    """The message is one sentence for the operator: what was wrong, where, and what to do."""
