import { type Line, ListError, type Original, originalOf } from './list'

/** The format of a list: CSV (RFC 4180), the same with tabs, or a JSON object in each line. */
export type RecordFormat = 'csv' | 'tsv' | 'ndjson'

/** The properties that the records of a list fill, and the sources of their values. */
export interface RecordRules {
  readonly format: RecordFormat
  /** The column or key for each property. If all are numbers, they count columns from 1, and there is no header. */
  readonly map: ReadonlyMap<string, string>
}

/** Values by property. */
export type RecordRow = Readonly<Record<string, unknown>>

/** An item of a list: a text, values, or a line that cannot be read. */
export type Entry = Line | { readonly row: RecordRow }

/** Whether the first record names the columns and is not a row. */
export const hasHeader = ({ format, map }: RecordRules): boolean =>
  format !== 'ndjson' && [...map.values()].some((column) => !/^[1-9]\d*$/.test(column))

/**
 * Reads the records of a list.
 *
 * @param onRecord called with each unchanged record, including the header, before its row is yielded
 * @throws ListError if the header lacks a column
 */
export async function* readRecords(
  lines: AsyncIterable<readonly Line[]>,
  rules: RecordRules,
  onRecord: (record: Original | undefined) => void = () => {},
): AsyncGenerator<Entry[], void, undefined> {
  let read = rules.format === 'ndjson' ? objectReader(rules) : hasHeader(rules) ? undefined : positionReader(rules)
  for await (const some of rules.format === 'ndjson' ? lines : joinedLines(lines)) {
    const entries: Entry[] = []
    for (const record of some) {
      onRecord(originalOf(record))
      // A blank line is not a record, but is counted as one.
      if (!read) read = headerReader(rules, record)
      else entries.push(typeof record === 'string' && record !== '' ? read(record) : record)
    }
    if (entries.length > 0) yield entries
  }
}

/** A limit, because an unbalanced quote would otherwise turn the rest of the list into one field. */
const MAX_RECORD_LENGTH = 4 * 2 ** 20

/** Joins lines to records. If the end of a line is within quotes, the record continues in the next line. */
async function* joinedLines(lines: AsyncIterable<readonly Line[]>): AsyncGenerator<Line[], void, undefined> {
  let begun = ''
  for await (const some of lines) {
    const records: Line[] = []
    for (const line of some) {
      if (typeof line === 'string') {
        const record = begun + line
        const isOpen = (record.split('"').length - 1) % 2 === 1
        begun = isOpen && record.length <= MAX_RECORD_LENGTH ? `${record}\n` : ''
        if (begun === '') records.push(record)
      } else {
        const { reason, original: end } = line
        const original = typeof end === 'string' ? begun + end : end && Buffer.concat([Buffer.from(begun), end])
        records.push({ reason, ...(original !== undefined && { original }) })
        begun = ''
      }
    }
    yield records
  }
  if (begun !== '') yield [begun.slice(0, -1)]
}

const FIELDS: Readonly<Record<'csv' | 'tsv', RegExp>> = {
  csv: /(?:"((?:[^"]|"")*)"|([^",]*))(,|$)/suy,
  tsv: /(?:"((?:[^"]|"")*)"|([^"\t]*))(\t|$)/suy,
}

/** Returns the fields of a record of RFC 4180, or undefined if a quote is not around a field. */
export function fieldsOf(record: string, format: keyof typeof FIELDS): string[] | undefined {
  const pattern = FIELDS[format]
  const fields: string[] = []
  pattern.lastIndex = 0
  for (;;) {
    const found = pattern.exec(record)
    if (!found) return undefined
    fields.push(found[1]?.replaceAll('""', '"') ?? found[2] ?? '')
    if (found[3] === '') return fields
  }
}

type ReadRecord = (record: string) => Entry

const NO_RECORD = { reason: 'it is not a record: a field has quotes in its middle' }
const TOO_LONG = { reason: 'the record has more fields than the first one' }
const TOO_SHORT = { reason: 'it has no such column: the record has too few fields' }

/**
 * @param positions the positions of the columns by property, from 0
 * @param width how many fields a record may have. @default as many as the first one
 */
function positionReader(
  { format, map }: RecordRules,
  positions: ReadonlyMap<string, number> = new Map([...map].map(([name, column]) => [name, Number(column) - 1])),
  width?: number,
): ReadRecord {
  let most = width
  return (record) => {
    const fields = fieldsOf(record, format === 'tsv' ? 'tsv' : 'csv')
    if (!fields) return NO_RECORD
    most ??= fields.length
    if (fields.length > most) return TOO_LONG
    const row: [string, unknown][] = []
    for (const [property, position] of positions) {
      const value = fields[position]
      if (value === undefined) return TOO_SHORT
      row.push([property, value === '' ? null : value])
    }
    return { row: Object.fromEntries(row) }
  }
}

const SHOWN_NAMES = 20

function headerReader(rules: RecordRules, record: Line): ReadRecord {
  const names = (typeof record === 'string' && fieldsOf(record, rules.format === 'tsv' ? 'tsv' : 'csv')) || []
  const positions = new Map([...rules.map].map(([property, column]) => [property, names.indexOf(column)]))
  const [missing] = [...rules.map].find(([property]) => positions.get(property) === -1)?.slice(1) ?? []
  const twice = [...rules.map.values()].find((column) => names.indexOf(column) !== names.lastIndexOf(column))
  if (missing === undefined && twice !== undefined)
    throw new ListError(`Line 1 of the list names the column "${twice}" twice. Give each of its columns another name.`)
  if (missing === undefined) return positionReader(rules, positions, names.length)
  const some = names.slice(0, SHOWN_NAMES).map((name) => JSON.stringify(name))
  const has = some.length === 0 ? '' : ` It has ${some.join(', ')}${names.length > SHOWN_NAMES ? ', …' : ''}.`
  throw new ListError(
    `The first line of the list has no column "${missing}".${has} Name one of its columns with --map.`,
  )
}

const NO_OBJECT = { reason: 'it is not a JSON object' }

function objectReader({ map }: RecordRules): ReadRecord {
  return (record) => {
    let value: unknown
    try {
      value = JSON.parse(record)
    } catch {
      return NO_OBJECT
    }
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return NO_OBJECT
    const given = new Map<string, unknown>(Object.entries(value))
    return { row: Object.fromEntries([...map].map(([property, key]) => [property, given.get(key) ?? null])) }
  }
}
