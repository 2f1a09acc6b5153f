const TOKEN = /"(?:[^"\\]|\\.)*"|[{[]|[\]}]|-?\d[\d.eE+-]*/g

/** JavaScript would have another number. */
const isRounded = (source: string): boolean => {
  const digits = source
    .replace(/[eE].*$/, '')
    .replaceAll(/[-.]/g, '')
    .replace(/^0+/, '')
  return digits.length > 15 && String(Number(source)) !== source && !Number.isSafeInteger(Number(source))
}

/**
 * Parses rows, or keys of rows, of which numbers that JavaScript would round become strings, as the driver gives a
 * `bigint` or a `numeric`. What stands within a value, of a column of JSON, is left to `JSON.parse`.
 *
 * @param depth how many brackets are around a value of a row: 1 for a row, 2 for a list of rows
 */
export function parseRows(json: string, depth: number): unknown {
  let around = 0
  const exact = json.replaceAll(TOKEN, (token) => {
    if (token === '{' || token === '[') around += 1
    else if (token === '}' || token === ']') around -= 1
    else if (!token.startsWith('"') && around === depth && isRounded(token)) return `"${token}"`
    return token
  })
  return JSON.parse(exact)
}
