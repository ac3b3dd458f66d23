"""Which GPUs this appliance has. The only part that talks to NVML."""

from __future__ import annotations

from appliance.inventory.nvml import InventoryError, NvmlInventory

__all__ = ["InventoryError", "NvmlInventory"]
