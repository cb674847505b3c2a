"""Pages about trained models: one HTML file each, which loads nothing from elsewhere."""

from structsmooth.report.page import write_report as write_report
