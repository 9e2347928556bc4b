"""gather_rows: rows of a table by number, decoded.

    gather_rows(w, layer, ids) -> float32 [..., K]

w a `Weight` of logical shape [N, K], whose arrays may have a layer axis in front; layer int32 scalar, the index in it;
ids int32 [...], from 0 to N - 1 (others are clamped). The values are those of the format's decode: published bf16
values are rounded to bf16, an F16 or F32 table is as it is stored. Formats: bf16, f16, f32, fp8_tensor, nvfp4 (both
serialisations), mxfp8. Only the rows that are asked for are read.
"""
