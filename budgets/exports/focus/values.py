"""Allowed values of FOCUS columns; the same in 1.2 and 1.4.

Source: FOCUS 1.2 and 1.4, Cost and Usage dataset; spec money, sections 2.1 and 2.2.
"""

from __future__ import annotations

from typing import Final

CHARGE_CATEGORIES: Final = ("Usage", "Purchase", "Tax", "Credit", "Adjustment")
USAGE, PURCHASE, TAX, CREDIT, ADJUSTMENT = CHARGE_CATEGORIES
CORRECTION: Final = "Correction"
FREQUENCIES: Final = ("One-Time", "Recurring", "Usage-Based")
ONE_TIME, RECURRING, USAGE_BASED = FREQUENCIES
PRICING_CATEGORIES: Final = ("Standard", "Dynamic", "Committed", "Other")
STANDARD, DYNAMIC, COMMITTED, OTHER = PRICING_CATEGORIES
USED, UNUSED = "Used", "Unused"
GPU_HOURS: Final = "GPU-Hours"

_SUBCATEGORIES: Final = {
    "AI and Machine Learning": (
        "AI Platforms, Bots, Generative AI, Machine Learning, Natural Language Processing"
    ),
    "Analytics": (
        "Analytics Platforms, Business Intelligence, Data Processing, Search, Streaming Analytics"
    ),
    "Business Applications": "Productivity and Collaboration",
    "Compute": (
        "Containers, End User Computing, Quantum Compute, Serverless Compute, Virtual Machines"
    ),
    "Databases": (
        "Caching, Data Warehouses, Ledger Databases, NoSQL Databases, Relational Databases, "
        "Time Series Databases"
    ),
    "Developer Tools": (
        "Developer Platforms, Continuous Integration and Deployment, Development Environments, "
        "Source Code Management, Quality Assurance"
    ),
    "Identity": "Identity and Access Management",
    "Integration": "API Management, Messaging, Workflow Orchestration",
    "Internet of Things": "IoT Analytics, IoT Platforms",
    "Management and Governance": (
        "Architecture, Compliance, Cost Management, Data Governance, Disaster Recovery, "
        "Endpoint Management, Observability, Support"
    ),
    "Media": "Content Creation, Gaming, Media Streaming, Mixed Reality",
    "Migration": "Data Migration, Resource Migration",
    "Mobile": "",
    "Multicloud": "Multicloud Integration",
    "Networking": (
        "Application Networking, Content Delivery, Network Connectivity, Network Infrastructure, "
        "Network Routing, Network Security"
    ),
    "Security": ("Secret Management, Security Posture Management, Threat Detection and Response"),
    "Storage": "Backup Storage, Block Storage, File Storage, Object Storage, Storage Platforms",
    "Web": "Application Platforms",
    "Other": "",
}
SERVICES: Final[dict[str, tuple[str, ...]]] = {
    category: tuple(filter(None, names.split(", "))) for category, names in _SUBCATEGORIES.items()
}
"""Service category → its subcategories, besides ``Other (<category>)``, which each has."""

PARENTS: Final = {
    subcategory: category
    for category, subcategories in SERVICES.items()
    for subcategory in (*subcategories, f"Other ({category})")
}

_NUMBERS = "CoreCount DiskMaxIops DiskSpace GpuCount MemorySize NetworkMaxIops NetworkMaxThroughput"
_TEXTS = "DiskType InstanceType InstanceSeries OperatingSystem Redundancy StorageClass"
SKU_PRICE_KEYS: Final[dict[str, type]] = {
    **dict.fromkeys(_NUMBERS.split(), int),
    **dict.fromkeys(_TEXTS.split(), str),
}
"""The keys that FOCUS defines in SkuPriceDetails; int stands for any number."""

DATA_UNITS: Final = frozenset(
    {"b", "B"} | {f"{prefix}{unit}" for prefix in "KMGTPE" for unit in ("b", "B", "ib", "iB")}
)
_TIMES = ("Year", "Month", "Day", "Hour", "Minute", "Second", "Millisecond", "Microsecond")
TIME_UNITS: Final = frozenset({f"{unit}{plural}" for unit in _TIMES for plural in ("", "s")})
