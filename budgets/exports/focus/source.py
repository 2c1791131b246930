"""What the FOCUS rows are made from: charge rows, who used the floor, and names.

Pure. The charge rows come from :mod:`budgets.charging`; whatever else a row of FOCUS says is
looked up here, so that the mapping itself asks nobody.

Source: spec money, section 2.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from budgets.charging.rows import ChargeRow

PLATFORM = "platform"


@dataclass(frozen=True, slots=True)
class WorkloadShare:
    """GPU-seconds of one workload on one cluster in the hour of a charge row, by class."""

    cluster: str
    uid: str
    name: str
    committed_used: int
    burst: int


@dataclass(frozen=True, slots=True)
class Commitment:
    """One flavor of one budget revision: what FOCUS calls a commitment discount.

    Attributes:
        namespace: Workspace.
        revision: Number of the budget revision; 0 where none is known.
        flavor: Flavor slug.
        is_reserved: Nothing of it may be lent: it is a capacity reservation, too.
    """

    namespace: str
    revision: int
    flavor: str
    is_reserved: bool = False

    @property
    def key(self) -> str:
        """Its unique id: CommitmentDiscountId, and ResourceId where it is bought or unused."""
        return f"budget/{self.namespace}/{self.revision}/{self.flavor}"

    @property
    def contract(self) -> str:
        """The agreement that it belongs to: the workspace's budget."""
        return f"budget/{self.namespace}"


@dataclass(frozen=True, slots=True)
class FocusInput:
    """One charge row with what it needs around it.

    Attributes:
        row: The charge.
        shares: Workloads of that hour, of the row's flavor; empty where nobody knows.
        commitment: Of a floor or a lending credit; None elsewhere.
        is_dynamic: The burst price follows a time series (spot).
        note: Words of an adjustment; for ChargeDescription.
        is_goodwill: An adjustment that is a credit and corrects no line.
        is_complete: Every cluster has reported the hour.
    """

    row: ChargeRow
    shares: tuple[WorkloadShare, ...] = ()
    commitment: Commitment | None = None
    is_dynamic: bool = False
    note: str = ""
    is_goodwill: bool = False
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class FocusNames:
    """Names and constants of a FOCUS file.

    Attributes:
        provider: Who runs the platform; issuer of the invoices and service provider.
        service: ServiceName.
        periods: Name of the billing period → (start, end), UTC.
        accounts: Account slug → display name.
        workspaces: Namespace → display name.
        hosts: Cluster → who hosts it, such as a data centre or cloud; else ``provider``.
    """

    provider: str
    periods: Mapping[str, tuple[datetime, datetime]]
    service: str = "GPU fleet"
    accounts: Mapping[str, str] = field(default_factory=dict)
    workspaces: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)
