"""A load generator and its reports. It knows an appliance only from outside, by HTTP."""
