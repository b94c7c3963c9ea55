"""Reports of programs: stages, values, communication, schedule and source in one file.

Input: a traced program, its passes, and source locations (`ReportInput` of `build`). Output:
`ReportData` of `records`, plain data that `writer` writes as one HTML file, `text` as text,
`records_json` as JSON, and `trace_events` and `model_explorer` as files of other viewers.
`simulated_schedule` writes simulations as trace events. Start with `program_report`.
"""
