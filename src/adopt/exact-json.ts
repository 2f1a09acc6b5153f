/** The tokens between strings: brackets and numbers. */
const TOKEN = /[{[]|[\]}]|-?\d[\d.eE+-]*/g

/**
 * Parses rows, or keys of rows. Numbers that JavaScript would round become strings, as the driver returns a `bigint` or
 * a `numeric`. `JSON.parse` handles the value of a column of JSON.
 *
 * @param depth the number of brackets around a value of a row: 1 for a row, 2 for a list of rows
 */
export function parseRows(json: string, depth: number): unknown {
  let around = 0
  const exact = (token: string): string => {
    if (token === '{' || token === '[') around += 1
    else if (token === '}' || token === ']') around -= 1
    if (around !== depth) return token
    const digits = token
      .replace(/[eE].*$/, '')
      .replaceAll(/[-.]/g, '')
      .replace(/^0+/, '')
    const isRounded = digits.length > 15 && String(Number(token)) !== token && !Number.isSafeInteger(Number(token))
    return isRounded ? `"${token}"` : token
  }
  let parsed = ''
  for (let at = 0; at < json.length;) {
    const start = json.indexOf('"', at)
    const between = start === -1 ? json.slice(at) : json.slice(at, start)
    const end = start === -1 ? json.length : endOfString(json, start)
    parsed += between.replaceAll(TOKEN, exact) + json.slice(at + between.length, end)
    at = end
  }
  return JSON.parse(parsed)
}

/** Finds the end without a regular expression, which would overflow the stack for a string of 20 MB. */
function endOfString(json: string, start: number): number {
  for (let end = json.indexOf('"', start + 1); ; end = json.indexOf('"', end + 1)) {
    let escapes = 0
    while (json[end - 1 - escapes] === '\\') escapes += 1
    if (escapes % 2 === 0) return end + 1
  }
}
