import type { EntityTarget, ObjectLiteral, QueryRunner } from 'typeorm'
import { DeclarationError, type Finding, SchemaDriftError, TextRejectedError } from '../errors'
import { entityTable } from '../registry/declarations'
import { namesOfTable, textsOfTable } from '../registry/registry'
import { normalizeText } from '../text/normalizer'
import { readStoredTexts, type StoredColumn, storedColumns, writeStoredTexts } from '../sql/rows'
import { requireOutOfShards } from './shards'
import { queryOf } from './table'

/** The number of rows that are read and written at once. */
const BATCH_ROWS = 1000

/** The number of rows that an error names. */
const NAMED_ROWS = 10

/**
 * Normalizes the texts and the names that the rows of an entity's table hold, as the entity declares them. A migration
 * that gives a text another normalizer has one statement that you replace by this call.
 *
 * It writes only rows that it changes, and no column that the table does not have yet, so that an older migration runs
 * on an empty database too.
 *
 * @returns how many rows it has changed
 * @throws TextRejectedError if a normalizer rejects a text; its `keys` are the primary keys of up to ten such rows
 * @throws SchemaDriftError if the table, or a column of its primary key, does not exist, or if Citus has distributed the
 *   table
 * @throws DeclarationError if the entity has neither texts nor names
 * @example
 * await normalizeTexts(queryRunner, Page) // in up() of a migration
 */
export async function normalizeTexts(queryRunner: QueryRunner, entity: EntityTarget<ObjectLiteral>): Promise<number> {
  const metadata = queryRunner.connection.getMetadata(entity)
  const table = entityTable(metadata)
  const query = queryOf(queryRunner)
  await requireOutOfShards(query, metadata)
  const columns = (await query(storedColumns(table))) as readonly StoredColumn[]
  const stored = (name: string): StoredColumn[] => columns.filter((one) => one.name === name)
  const gone = metadata.primaryColumns.flatMap(({ databaseName: name }): Finding[] =>
    stored(name).length > 0 ? [] : [{ kind: 'missing', object: 'column', name }],
  )
  if (gone.length > 0) throw new SchemaDriftError(table.table, gone)
  const declared = [
    ...textsOfTable(metadata).flatMap(({ text }) => text),
    ...namesOfTable(metadata).map(({ text }) => text),
  ]
  if (declared.length === 0) {
    throw new DeclarationError(
      `${metadata.name} has no unique text and no name. Give normalizeTexts() an entity that has one.`,
    )
  }
  const texts = [...new Map(declared.map((one) => [one.column.databaseName, one])).values()].filter(
    ({ column }) => stored(column.databaseName).length > 0,
  )
  const primary = metadata.primaryColumns.flatMap(({ databaseName }) => stored(databaseName))
  const on = { ...table, primary, texts: texts.map(({ column }) => column.databaseName) }
  const { open, next, close } = readStoredTexts(on, BATCH_ROWS)
  const rejected: { readonly error: TextRejectedError; readonly key: ObjectLiteral }[] = []
  let changed = 0
  await query(open)
  for (;;) {
    const rows = (await query(next)) as readonly RowTexts[]
    if (rows.length === 0) break
    const changes = rows.flatMap((row): RowTexts[] => {
      try {
        const after = texts.map(({ column, normalizer }, index) => {
          const text = row.texts[index] ?? null
          return text === null ? null : normalizeText(normalizer, column.propertyPath, text)
        })
        return after.some((text, index) => text !== row.texts[index]) ? [{ keys: row.keys, texts: after }] : []
      } catch (error) {
        if (!(error instanceof TextRejectedError)) throw error
        rejected.push({ error, key: Object.fromEntries(primary.map(({ name }, n) => [name, row.keys[n + 1]])) })
        return []
      }
    })
    if (rejected.length >= NAMED_ROWS) break
    if (changes.length > 0) await query(writeStoredTexts(on), valuesOf(changes))
    changed += changes.length
  }
  await query(close)
  const [first] = rejected
  if (first) {
    const { property, reason, offset } = first.error
    const keys = rejected.slice(0, NAMED_ROWS).map(({ key }) => key)
    throw new TextRejectedError({
      property,
      reason: `${reason}, in the rows that "keys" of this error has`,
      offset,
      keys,
    })
  }
  return changed
}

/** A row, by its table and its primary key as texts. */
interface RowTexts {
  readonly keys: readonly string[]
  readonly texts: readonly (string | null)[]
}

/** Returns an array of values for each column. */
const valuesOf = (rows: readonly RowTexts[]): (readonly (string | null)[])[] => {
  const all = rows.map(({ keys, texts }) => [...keys, ...texts])
  return (all[0] ?? []).map((_, index) => all.map((row) => row[index] ?? null))
}
