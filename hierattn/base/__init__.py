"""What knows no attention: errors and reasons, float64, threads, provenance, files in and out."""
