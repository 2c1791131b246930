"""Allowed values of FOCUS columns; the same in 1.2 and 1.4.

Source: FOCUS 1.2 and 1.4, Cost and Usage dataset; spec money, sections 2.1 and 2.2.
"""

from __future__ import annotations

from typing import Final

USAGE, PURCHASE, TAX, CREDIT, ADJUSTMENT = "Usage", "Purchase", "Tax", "Credit", "Adjustment"
CORRECTION: Final = "Correction"
ONE_TIME, RECURRING, USAGE_BASED = "One-Time", "Recurring", "Usage-Based"
STANDARD, DYNAMIC, COMMITTED, OTHER = "Standard", "Dynamic", "Committed", "Other"
USED, UNUSED = "Used", "Unused"
GPU_HOURS: Final = "GPU-Hours"

SERVICES: Final[dict[str, tuple[str, ...]]] = {
    "AI and Machine Learning": (
        "AI Platforms",
        "Bots",
        "Generative AI",
        "Machine Learning",
        "Natural Language Processing",
    ),
    "Analytics": (
        "Analytics Platforms",
        "Business Intelligence",
        "Data Processing",
        "Search",
        "Streaming Analytics",
    ),
    "Business Applications": ("Productivity and Collaboration",),
    "Compute": (
        "Containers",
        "End User Computing",
        "Quantum Compute",
        "Serverless Compute",
        "Virtual Machines",
    ),
    "Databases": (
        "Caching",
        "Data Warehouses",
        "Ledger Databases",
        "NoSQL Databases",
        "Relational Databases",
        "Time Series Databases",
    ),
    "Developer Tools": (
        "Developer Platforms",
        "Continuous Integration and Deployment",
        "Development Environments",
        "Source Code Management",
        "Quality Assurance",
    ),
    "Identity": ("Identity and Access Management",),
    "Integration": ("API Management", "Messaging", "Workflow Orchestration"),
    "Internet of Things": ("IoT Analytics", "IoT Platforms"),
    "Management and Governance": (
        "Architecture",
        "Compliance",
        "Cost Management",
        "Data Governance",
        "Disaster Recovery",
        "Endpoint Management",
        "Observability",
        "Support",
    ),
    "Media": ("Content Creation", "Gaming", "Media Streaming", "Mixed Reality"),
    "Migration": ("Data Migration", "Resource Migration"),
    "Mobile": (),
    "Multicloud": ("Multicloud Integration",),
    "Networking": (
        "Application Networking",
        "Content Delivery",
        "Network Connectivity",
        "Network Infrastructure",
        "Network Routing",
        "Network Security",
    ),
    "Security": (
        "Secret Management",
        "Security Posture Management",
        "Threat Detection and Response",
    ),
    "Storage": (
        "Backup Storage",
        "Block Storage",
        "File Storage",
        "Object Storage",
        "Storage Platforms",
    ),
    "Web": ("Application Platforms",),
    "Other": (),
}
"""Service category → its subcategories, besides ``Other (<category>)``, which each has."""

PARENTS: Final = {
    subcategory: category
    for category, subcategories in SERVICES.items()
    for subcategory in (*subcategories, f"Other ({category})")
}

ALLOWED: Final[dict[str, frozenset[str]]] = {
    "ChargeCategory": frozenset({USAGE, PURCHASE, TAX, CREDIT, ADJUSTMENT}),
    "ChargeClass": frozenset({CORRECTION}),
    "ChargeFrequency": frozenset({ONE_TIME, RECURRING, USAGE_BASED}),
    "PricingCategory": frozenset({STANDARD, DYNAMIC, COMMITTED, OTHER}),
    "CommitmentDiscountCategory": frozenset({"Spend", "Usage"}),
    "CommitmentDiscountStatus": frozenset({USED, UNUSED}),
    "CapacityReservationStatus": frozenset({USED, UNUSED}),
    "ServiceCategory": frozenset(SERVICES),
    "ServiceSubcategory": frozenset(PARENTS),
}

SKU_PRICE_KEYS: Final[dict[str, type]] = {
    "CoreCount": int,
    "DiskMaxIops": int,
    "DiskSpace": int,
    "DiskType": str,
    "GpuCount": int,
    "InstanceType": str,
    "InstanceSeries": str,
    "MemorySize": int,
    "NetworkMaxIops": int,
    "NetworkMaxThroughput": int,
    "OperatingSystem": str,
    "Redundancy": str,
    "StorageClass": str,
}
"""The keys that FOCUS defines in SkuPriceDetails; int stands for any number."""

DATA_UNITS: Final = frozenset(
    {"b", "B"} | {f"{prefix}{unit}" for prefix in "KMGTPE" for unit in ("b", "B", "ib", "iB")}
)
_TIMES = ("Year", "Month", "Day", "Hour", "Minute", "Second", "Millisecond", "Microsecond")
TIME_UNITS: Final = frozenset({f"{unit}{plural}" for unit in _TIMES for plural in ("", "s")})
