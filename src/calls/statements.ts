import type { EntityMetadata } from 'typeorm'
import { type ColumnMetadata, numbersOfTable, rootOf } from '../registry/registry'
import { findManyStatement, findOrCreateManyStatement, findTogetherStatement, lockManyStatement } from '../sql/batch'
import {
  type BatchRow,
  createInChainStatement,
  createStatement,
  findOrCreateStatement,
  findStandingStatement,
  findStatement,
  guardedNumbers,
  restoreStatement,
  type RowShape,
  type Statement,
} from '../sql/find'
import { updateManySpreadStatement, updateSpreadStatement } from '../sql/spread'
import { deleteStatement, type UpdateShape, upsertManyStatement, upsertStatement } from '../sql/upsert'
import {
  cached,
  type EntityText,
  type ReadyText,
  type RowStatements,
  type Updates,
  type UpsertStatements,
} from './entity-text'
import { isChanging } from './updates'

/** An empty list that all rows with only a key share, because thousands of lists would cost memory. */
export const NO_OTHERS: readonly string[] = []

/**
 * Returns the statements for rows that set the same columns beside their key. Each is compiled once, when first sent.
 */
export function statementsOf(entityText: ReadyText, others: readonly string[] = NO_OTHERS): RowStatements {
  return cached(entityText.rowStatements, others, () => {
    const shape = rowShape(entityText, others)
    return lazily<RowStatements>({
      find: () => findStatement(shape),
      findStanding: () => findStandingStatement(shape),
      findOrCreate: () => findOrCreateStatement(shape),
      create: () => createStatement(shape),
      createInChain: () => createInChainStatement(shape, 'nothing'),
      createInChainOrRaise: () => createInChainStatement(shape, 'raise'),
      restore: () => {
        const { deleteDateColumn, versionColumn, updateDateColumn } = entityText.metadata
        return restoreStatement(shape, {
          deleted: deleteDateColumn?.databaseName ?? '',
          version: versionColumn?.databaseName,
          updated: updateDateColumn?.databaseName,
        })
      },
      delete: () => deleteStatement(shape, classFilter(entityText.metadata), deletedColumn(entityText)),
      deleteAnyway: () => deleteStatement(shape, classFilter(entityText.metadata)),
      findMany: () => findManyStatement(shape),
      lockMany: () => lockManyStatement(shape),
      findTogether: () => findTogetherStatement(shape),
    })
  })
}

/** Returns the statements that change these columns of one row, compiled and cached likewise. */
export function upsertStatementsOf(
  entityText: ReadyText,
  others: readonly string[],
  updates: Updates,
  update: readonly string[],
): UpsertStatements {
  const key = [...others, '', ...update, String(updates.skipUnchanged), updates.sqlKey]
  return cached(entityText.upsertStatements, key, () => {
    const shape = rowShape(entityText, others)
    const changes = updateShape(entityText, updates, update)
    return lazily<UpsertStatements>({
      upsert: () => upsertStatement(shape, changes, true),
      update: () =>
        entityText.ready.distributed ? updateSpreadStatement(shape, changes) : upsertStatement(shape, changes, false),
    })
  })
}

/**
 * Returns the statement that finds or writes the rows of a batch, compiled and cached likewise.
 *
 * @param fewRows whether the statement is prepared
 * @param isUnchanged in a distributed table: finds the rows that need no update
 */
export function batchStatementOf(
  entityText: ReadyText,
  columns: Pick<RowShape, 'others' | 'defaults' | 'fewScopes'>,
  updates: Updates | undefined,
  fewRows: boolean,
  isUnchanged: boolean,
): Statement<BatchRow> {
  const { others, defaults, fewScopes } = columns
  const update = updates ? others.filter((name) => updates.columns.has(name)) : []
  const lists = [others, [...defaults].flat(), fewScopes, update].flatMap((list) => [...list, ''])
  const key = [...lists, `${fewRows} ${isUnchanged} ${updates?.skipUnchanged}`, updates?.sqlKey ?? '']
  return cached(entityText.batchStatements, key, () => {
    const shape = { ...rowShape(entityText, others), ...columns }
    if (!updates || !isChanging(updates, { others })) return findOrCreateManyStatement(shape, fewRows)
    const changes = updateShape(entityText, updates, update)
    return entityText.ready.distributed
      ? updateManySpreadStatement(shape, changes, isUnchanged)
      : upsertManyStatement(shape, changes, fewRows)
  })
}

/** Returns an object whose properties are created when they are first read. */
function lazily<Made extends object>(makers: { readonly [Name in keyof Made]: () => Made[Name] }): Made {
  const made = {} as Made
  for (const [name, make] of Object.entries<() => unknown>(makers)) {
    const get = (): unknown => {
      const value = make()
      Object.defineProperty(made, name, { value })
      return value
    }
    Object.defineProperty(made, name, { configurable: true, get })
  }
  return made
}

/**
 * Returns the columns of a row. After those that `find` loads, it selects the discriminator of single table inheritance
 * and the delete date.
 */
export function rowShape(
  { metadata, select, declaration, otherTexts, spatial, ready, echoed }: ReadyText,
  others: readonly string[],
): RowShape {
  const names = select.map(({ databaseName }) => databaseName)
  const discriminator = metadata.discriminatorColumn?.databaseName
  const hidden = [discriminator, deletedColumn({ metadata, declaration })].filter(
    (name): name is string => name !== undefined && !names.includes(name),
  )
  return {
    ...ready,
    table: declaration.table,
    others,
    select: [...names, ...hidden],
    echoed,
    spatial,
    otherNumbers: guardedNumbers(otherTexts.map(({ table }) => table)),
    numbered: numbersOfTable(metadata).length > 0,
    defaults: new Map(),
    fewScopes: [],
  }
}

/** Returns the delete date column if softly deleted rows hold their texts. */
const deletedColumn = ({ metadata, declaration }: Pick<EntityText, 'metadata' | 'declaration'>): string | undefined =>
  declaration.table.deleted === undefined ? metadata.deleteDateColumn?.databaseName : undefined

function updateShape(
  { metadata, otherTexts }: EntityText,
  { skipUnchanged, sql, where }: Updates,
  update: readonly string[],
): UpdateShape {
  const names = (is: (column: ColumnMetadata) => boolean): string[] =>
    metadata.columns.filter(is).map(({ databaseName }) => databaseName)
  return {
    update,
    sql,
    where,
    versions: names(({ isVersion }) => isVersion),
    updateDates: names(({ isUpdateDate }) => isUpdateDate),
    hashes: changedTexts(otherTexts, update).flatMap(({ table }) => (table.guardless === true ? [table] : [])),
    skipUnchanged,
    only: classFilter(metadata),
  }
}

/** Excludes rows of another class of single table inheritance, which the call must not change. */
export function classFilter(metadata: EntityMetadata): UpdateShape['only'] {
  const { discriminatorColumn, childEntityMetadatas } = metadata
  if (!discriminatorColumn || metadata === rootOf(metadata)) return undefined
  const values = [metadata, ...childEntityMetadatas].map(({ discriminatorValue }) => String(discriminatorValue))
  return { column: discriminatorColumn.databaseName, values }
}

/** Returns the texts of which an update sets a part. */
export const changedTexts = (texts: EntityText['otherTexts'], update: readonly string[]): EntityText['otherTexts'] =>
  texts.filter(({ table }) => table.text.some(({ name }) => update.includes(name)))
