"""Control plane of the appliance."""
