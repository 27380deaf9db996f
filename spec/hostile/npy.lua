--- .npy files.
local core = require("lupine.core")
local file = require("spec.hostile.file")

local function header(text)
  return "\x93NUMPY\1\0" .. string.pack("<I2", #text) .. text
end

local function npy(descr, shape, data, order)
  return header(("{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n"):format(descr,
    order or "False", shape)) .. (data or "")
end

local HUGE = "9223372036854775807"
local VALID = npy("'<f4'", "(2, 1)", string.pack("<ff", 1.5, -2.0))

return {
  read = file(core.read_npy),
  cut = true,
  valid = { VALID, npy("'>i2'", "(1, 2)", "abcd", "True") },
  refused = {
    { "no magic number", "\x93NUMPX\1\0" .. ("x"):rep(80), "ValueError", "no npy file" },
    { "a later version", "\x93NUMPY\4\0" .. ("x"):rep(80), "ValueError", "npy version 4" },
    { "a header of 4 GB", "\x93NUMPY\2\0\255\255\255\255" .. ("x"):rep(80), "ValueError",
      "header of 4294967295 bytes" },
    { "a long header", header((" "):rep(10001)), "ValueError", "at most 10000" },
    { "no dictionary", header(""), "ValueError", "expected '{'" },
    { "an empty dictionary", header("{}"), "ValueError",
      "expected descr, fortran_order and shape" },
    { "half a dictionary", header("{'descr': '<f4'"), "ValueError", "expected ',' or '}'" },
    { "a name twice", header("{'descr': '<f4', 'descr': '<f4'}"), "ValueError", "once" },
    { "another name", header("{'other': 1}"), "ValueError", "once" },
    { "Python", header("{'descr': __import__('os')}"), "ValueError", "a short string" },
    { "a long type", header("{'descr': '" .. ("x"):rep(9000) .. "'}"), "ValueError",
      "short string" },
    { "an escape", header("{'descr': '<\\x66'}"), "ValueError", "a short string" },
    { "a zero byte", header("{'descr': '<f4\0'}"), "ValueError", "zero byte" },
    { "no boolean", npy("'<f4'", "(1,)", "abcd", "1"), "ValueError", "True or False" },
    { "a negative size", npy("'<f4'", "(-1,)", "abcd"), "ValueError", "expected a size" },
    { "no comma", npy("'<f4'", "(1 1)", "abcd"), "ValueError", "expected ',' or '%)'" },
    { "two commas", npy("'<f4'", "(1,,)", "abcd"), "ValueError", "expected a size" },
    { "a number for the shape", npy("'<f4'", "1", "abcd"), "ValueError", "expected '%('" },
    { "many parentheses", npy("'<f4'", ("("):rep(9000), "abcd"), "ValueError", "a size" },
    { "many digits", npy("'<f4'", "(" .. ("9"):rep(9000) .. ",)", "abcd"), "ValueError",
      "below 2" },
    { "many zeros", npy("'<f4'", "(" .. ("0"):rep(9000) .. ",)", "abcd"), "ValueError",
      "extra bytes" },
    { "a size beyond 63 bits", npy("'<f4'", "(" .. HUGE .. "0,)", "abcd"), "ValueError",
      "below 2" },
    { "bytes beyond 63 bits", npy("'<f4'", "(" .. HUGE .. ",)", "abcd"), "ValueError", "beyond" },
    { "a product that wraps to 4", npy("'|u1'", "(4294967296, 4294967296, 4)", "abcd"),
      "ValueError", "beyond" },
    { "empty but wide", npy("'<f4'", "(0, " .. HUGE .. ", 4)", "abcd"), "ValueError", "beyond" },
    { "many sizes", npy("'<f4'", "(" .. ("1,"):rep(3000) .. ")", "abcd"), "ValueError",
      "at most 12" },
    { "fewer bytes", npy("'<f4'", "(2,)", "abcd"), "ValueError", "truncated" },
    { "4 GB of nothing", npy("'<f4'", "(1000000000,)", "abcd"), "ValueError", "truncated" },
    { "bytes behind", VALID .. "!", "ValueError", "extra bytes" },
    { "complex numbers", npy("'<c8'", "(1,)", "abcdefgh"), "ValueError", "type is '<c8'" },
    { "objects", npy("'|O'", "(1,)", "abcdefgh"), "ValueError", "type is '|O'" },
    { "text", npy("'<U4'", "(1,)", "abcdefgh"), "ValueError", "type is '<U4'" },
    { "unsigned numbers", npy("'<u8'", "(1,)", "abcdefgh"), "ValueError", "type is '<u8'" },
    { "a huge element", npy("'<f99999999999999999999'", "(1,)", "abcd"), "ValueError", "type is" },
    { "no type", npy("''", "(1,)", "abcd"), "ValueError", "type is ''" },
    { "records", npy("[('a', '<f4')]", "(1,)", "abcd"), "ValueError", "records" },
  },
}
