"""The controlled experiment: training losses compared with one network, one budget and one way of tuning."""
