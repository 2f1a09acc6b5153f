import { type Line, ListError } from './list'

/** A record ends at the end of a line, unless that stands within quotes: then it goes on in the next. */
const isOpen = (record: string): boolean => (record.split('"').length - 1) % 2 === 1

const FIELD = /(?:"((?:[^"]|"")*)"|([^",]*))(?:,|$)/suy

/** The fields of a record of RFC 4180; undefined if quotes stand anywhere but around a field. */
export function csvFields(record: string): string[] | undefined {
  const fields: string[] = []
  FIELD.lastIndex = 0
  for (;;) {
    const found = FIELD.exec(record)
    if (!found) return undefined
    fields.push(found[1]?.replaceAll('""', '"') ?? found[2] ?? '')
    if (FIELD.lastIndex === record.length && !found[0].endsWith(',')) return fields
    if (FIELD.lastIndex === record.length) return [...fields, '']
  }
}

const NO_CSV = { reason: 'it is not a CSV record: a field has quotes in its middle' }
const TOO_SHORT = { reason: 'it has no such column: the record has too few fields' }
/** An unbalanced quote would otherwise take the rest of the list for one field. */
const MAX_LENGTH = 4 * 2 ** 20

/**
 * The texts of one column of a CSV list (RFC 4180), a record for a line. The first record names the columns.
 *
 * @throws ListError where it does not name this column
 */
export async function* columnOf(
  lines: AsyncIterable<readonly Line[]>,
  column: string,
): AsyncGenerator<Line[], void, undefined> {
  let position: number | undefined
  let begun = ''
  for await (const some of lines) {
    const texts: Line[] = []
    for (const line of some) {
      const record: Line = typeof line === 'string' ? begun + line : line
      if (typeof record === 'string' && isOpen(record) && record.length <= MAX_LENGTH) {
        begun = `${record}\n`
        continue
      }
      begun = ''
      if (position === undefined) position = positionOf(record, column)
      else texts.push(textAt(record, position))
    }
    if (texts.length > 0) yield texts
  }
  if (begun !== '') yield [NO_CSV]
}

function positionOf(record: Line, column: string): number {
  const names = typeof record === 'string' ? (csvFields(record) ?? []) : []
  const position = names.indexOf(column)
  if (position !== -1) return position
  throw new ListError(`The first line of the list has no column "${column}". Name one of its columns with --column.`)
}

function textAt(record: Line, position: number): Line {
  // A blank line is no record, and is counted as one.
  if (typeof record !== 'string' || record === '') return record
  const fields = csvFields(record)
  return fields ? (fields[position] ?? TOO_SHORT) : NO_CSV
}
