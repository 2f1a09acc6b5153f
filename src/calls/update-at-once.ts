import type { ObjectLiteral } from 'typeorm'
import type { Session } from '../connection/session'
import type { Step } from '../connection/transactions'
import { parameterOptions } from '../connection/wire'
import { entityTable } from '../registry/declarations'
import { type ColumnMetadata, textsOfEntity } from '../registry/registry'
import { columnTypes } from '../sql/catalog'
import type { WireRow } from '../sql/find'
import { tableName } from '../sql/text-table'
import { type ColumnTypes, parameterText } from '../sql/types'
import { setAsideStatement, updateManyStatement } from '../sql/update-many'
import { compareTexts, groupBy } from './batches'
import type { EntityColumns } from './entity-text'
import { missingRow, type RowKey } from './row-key'
import { classFilter } from './statements'
import { insertValue, pathsBeside } from './values'
import { type RequestedText, takenParameters, wantedOf, type WrittenRow } from './taken'

/** A row to change. Listeners may change its values. */
export interface ChangedRow extends WrittenRow {
  readonly id: ObjectLiteral
  readonly key: RowKey
}

/** A column that one of the rows sets. The lists have an element for each row. */
interface ChangedColumn {
  readonly values: (string | null)[]
  /** Whether the row sets the column. */
  readonly given: boolean[]
}

/** Rows of one entity that one statement changes. */
interface Group {
  readonly rows: readonly ChangedRow[]
  /** The changed columns, by database name. */
  readonly columns: ReadonlyMap<string, ChangedColumn>
  readonly types: ColumnTypes
}

/** The steps that change the rows of a call at once. */
export interface AtOnce {
  readonly steps: readonly Step<WireRow>[]
  /** Returns the changed row at each position of the call. */
  readonly changed: (answers: readonly (readonly WireRow[])[]) => readonly (WireRow | undefined)[]
}

/**
 * Returns steps that change all rows at once, so that their order does not matter and two rows can swap their texts.
 * Their number depends on the tables, and not on the rows.
 *
 * @returns undefined if the rows are changed one after another: one has SQL or further conditions, is given twice, or is
 * distributed
 */
export async function atOnce(
  session: Session,
  rows: readonly ChangedRow[],
  requested: readonly RequestedText[],
): Promise<AtOnce | undefined> {
  const identities = new Set(rows.map(({ columns, key }) => `${columns.metadata.tablePath} ${key.identity}`))
  const isAlone = rows.length < 2 || identities.size < rows.length
  if (isAlone || requested.some(({ entityText }) => entityText.ready.distributed)) return undefined
  // A row that is deleted gives up its text and gets no other one. These rows change first.
  const leaving = new Set(requested.filter(({ live }) => live === false).map(({ row }) => row))
  const groups: Group[] = []
  for (const leaves of [true, false]) {
    const some = rows.filter(({ position }) => leaving.has(position) === leaves)
    for (const ofEntity of groupBy(some, ({ columns }) => columns.metadata.name).values()) {
      const group = await groupOf(session, ofEntity, requested)
      if (!group) return undefined
      groups.push(group)
    }
  }
  const staying = requested.filter(({ live }) => live !== false)
  const asides = [...groupBy(staying, ({ entityText }) => entityText.declaration).values()].map((ofText) =>
    setAsideStep(ofText, groups),
  )
  return {
    steps: [...asides, ...groups.map(updateStep)],
    changed: (answers) => {
      const changed: WireRow[] = []
      for (const [nth, group] of groups.entries()) {
        for (const [ordinal, ...row] of answers[asides.length + nth] ?? []) {
          const position = group.rows[Number(ordinal) - 1]?.position
          if (position !== undefined) changed[position] = row
        }
      }
      return changed
    },
  }
}

/** @returns undefined if TypeORM's own UPDATE must change the rows, or refuse to */
async function groupOf(
  session: Session,
  given: readonly ChangedRow[],
  requested: readonly RequestedText[],
): Promise<Group | undefined> {
  // Two calls that change the same rows lock them in the same order.
  const rows = given.toSorted((left, right) => compareTexts(left.key.identity, right.key.identity))
  const [{ columns: entity }] = rows as [ChangedRow]
  const { metadata } = entity
  const declarations = textsOfEntity(metadata)
  const isFixed = declarations.some(({ table }) => table.spread || (table.guardless && table.immutable))
  if (isFixed || rows.some(({ id }) => pathsBeside(metadata, metadata.primaryColumns, id).length > 0)) return undefined
  const positions = new Set(rows.map(({ position }) => position))
  const changedTexts = requested.filter(({ row }) => positions.has(row))
  const [text] = changedTexts
  const types = text?.entityText.ready.types ?? (await columnTypes(session.query, tableName(entityTable(metadata))))
  // The text of a row that only changes its scope may be set aside.
  const texts = new Set(
    changedTexts.flatMap(({ entityText }) => entityText.declaration.table.text).map(({ name }) => name),
  )
  const hidden = new Set(declarations.flatMap((one) => one.hidden.map(({ databaseName }) => databaseName)))
  const columns = new Map<string, ChangedColumn>()
  for (const column of metadata.columns.filter((one) => one.isUpdate && !hidden.has(one.databaseName))) {
    const { databaseName } = column
    const changed = changedColumn(entity, rows, column, types.get(databaseName)?.type)
    if (!changed) return undefined
    if (changed.given.includes(true) || texts.has(databaseName)) columns.set(databaseName, changed)
  }
  const isChanged = (_: unknown, nth: number): boolean => [...columns.values()].some((one) => one.given[nth])
  return rows.every(isChanged) ? { rows, columns, types } : undefined
}

/** @returns undefined if a row sets it to SQL, or to bytes that no text can have */
function changedColumn(
  { dataSource }: EntityColumns,
  rows: readonly ChangedRow[],
  column: ColumnMetadata,
  type: string | undefined,
): ChangedColumn | undefined {
  if (rows.some(({ values }) => typeof column.getEntityValue(values) === 'function')) return undefined
  const sent = rows.map(({ values }) => insertValue({ dataSource }, column, values))
  if (type !== 'bytea' && sent.some((value) => ArrayBuffer.isView(value))) return undefined
  const options = parameterOptions(dataSource)
  return {
    values: sent.map((value) => parameterText(value, options)),
    given: sent.map((value) => value !== undefined),
  }
}

function updateStep({ rows, columns, types }: Group): Step<WireRow> {
  const [{ columns: entity }] = rows as [ChangedRow]
  const { metadata, spatial, select, dataSource } = entity
  const names = (list: readonly ColumnMetadata[]): string[] => list.map(({ databaseName }) => databaseName)
  const statement = updateManyStatement({
    table: entityTable(metadata),
    primary: names(metadata.primaryColumns),
    types,
    spatial,
    select: names(select),
    changes: {
      update: [...columns.keys()],
      sql: new Map(),
      versions: names(metadata.columns.filter((one) => one.isVersion && !columns.has(one.databaseName))),
      updateDates: names(metadata.columns.filter(({ isUpdateDate }) => isUpdateDate)),
      hashes: textsOfEntity(metadata)
        .map(({ table }) => table)
        .filter(({ guardless, text }) => guardless === true && text.some(({ name }) => columns.has(name))),
      skipUnchanged: false,
      only: classFilter(metadata),
    },
  })
  const options = parameterOptions(dataSource)
  const changed = [...columns.values()]
  const values = [
    ...metadata.primaryColumns.map((_, nth) => rows.map(({ key }) => parameterText(key.values[nth], options))),
    ...changed.map((one) => one.values),
    ...changed.map((one) => one.given),
  ]
  const check = (answer: readonly WireRow[]): void => {
    const found = new Set(answer.map(([ordinal]) => Number(ordinal) - 1))
    const missing = rows.find((_, nth) => !found.has(nth))
    if (missing) throw missingRow(metadata, metadata.getEntityIdMap(missing.id))
  }
  return { statement, values, check, isPartial: true }
}

/** A row that only changes its scope gets back the text that is set aside. */
function setAsideStep(requested: readonly RequestedText[], groups: readonly Group[]): Step<WireRow> {
  const places = new Map(
    groups.flatMap(({ rows, columns }) => rows.map(({ position }, nth) => [position, { columns, nth }] as const)),
  )
  const check = (answer: readonly WireRow[]): void => {
    const former = new Map(answer.map(([ordinal, ...texts]) => [Number(ordinal) - 1, texts as (string | null)[]]))
    for (const [index, { row, key, entityText }] of requested.entries()) {
      const { scope, text } = entityText.declaration.table
      const place = places.get(row)
      for (const [part, { name }] of text.entries()) {
        const changed = place?.columns.get(name)
        if (!place || !changed || key[scope.length + part] !== undefined) continue
        // An earlier attempt may have set it.
        changed.given[place.nth] = former.has(index)
        changed.values[place.nth] = former.get(index)?.[part] ?? null
      }
    }
  }
  return { statement: setAsideStatement(wantedOf(requested)), values: takenParameters(requested), check }
}
