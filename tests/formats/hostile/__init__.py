"""Files to read that hypothesis makes, valid ones and damaged ones, and a process that reads them."""
