import type { DataSource, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import {
  createLog,
  findLog,
  forgetLog,
  type Logged,
  READ_COLUMNS,
  readMoves,
  resolveKey,
  restoreRows,
  turnBack,
} from '../sql/adopt-merge'
import { checkOptions } from '../options'
import { qualified } from '../sql/identifier'
import { tableName } from '../sql/text-table'
import { dataSourceOf } from '../registry/registry'
import { LOCK_RULES, type LockOption, PROPERTY } from './options'
import { type AdoptOptions, withTarget } from './adopt'
import { withSession } from './session'
import { requireAdopted } from './merge'
import { findDeclaration, findTarget } from './target'

/**
 * Returns the primary key of the row that a merged row became, for links and caches that outlive that row.
 *
 * @param key key of the row that is gone: a value, or, for a key of several columns, an object by their names in the
 * database
 * @returns in the form that was given; undefined where no row of this key was merged
 * @throws DeclarationError
 */
export async function resolveMerged<Key extends number | string | ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<ObjectLiteral>,
  key: Key,
  options: Pick<AdoptOptions, 'property'> = {},
): Promise<Key | undefined> {
  checkOptions('resolveMerged()', options, PROPERTY)
  const { table, metadata } = findDeclaration(dataSourceOf(manager), entity, options.property)
  const names = metadata.primaryColumns.map(({ databaseName }) => databaseName)
  const [log] = (await manager.query(findLog, [tableName(table)])) as { schema: string; logged: boolean }[]
  if (log?.logged !== true) return undefined
  const parts = names.map((name) => String(typeof key === 'object' ? key[name] : key))
  const on = { table: { ...table, schema: log.schema } }
  const [found] = (await manager.query(resolveKey(on), [table.guard, parts])) as { kept: string[] }[]
  return found && (keyLike(key, names, found.kept) as Key)
}

function keyLike(given: unknown, names: readonly string[], kept: readonly string[]): unknown {
  const like = (one: unknown, value: string | undefined): unknown => (typeof one === 'number' ? Number(value) : value)
  if (typeof given !== 'object') return like(given, kept[0])
  return Object.fromEntries(names.map((name, index) => [name, like((given as ObjectLiteral)[name], kept[index])]))
}

/** Options of `unmerge`; as those of `adopt`. */
export type UnmergeOptions = Pick<AdoptOptions, LockOption>

/**
 * Plays the log of merges backwards, in one transaction: merged rows come back whole, and references point to them
 * again. Possible only while the table is not unique: before it is adopted, or after `abandon`.
 *
 * @returns how many rows came back
 * @throws AdoptionError if the table is unique
 */
export async function unmerge(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: UnmergeOptions = {},
): Promise<number> {
  checkOptions('unmerge()', options, LOCK_RULES)
  const declaration = findDeclaration(dataSource, entity, options.property)
  return await withTarget({ dataSource, declaration, options, seams: {} }, async (session, target) => {
    const { on, facts } = target
    requireAdopted(target, false)
    await session.all(createLog(on))
    const columnsOf = async (table: string): Promise<string[]> =>
      (await session.query<{ name: string }>(READ_COLUMNS, [table])).map(({ name }) => name)
    return await session.patiently('unmerge', async () => {
      const back = await session.query(`${restoreRows(on, await columnsOf(facts.oid))} RETURNING 1`, [on.table.guard])
      for (const { seq, reference } of await session.query<Record<'seq' | 'reference', string>>(readMoves(on), [
        on.table.guard,
      ])) {
        const logged = JSON.parse(reference) as Logged
        const columns = 'gone' in logged ? await columnsOf(qualified(logged.schema, logged.table)) : []
        await session.query(turnBack(on, logged, columns), [seq])
      }
      await session.query(forgetLog(on), [on.table.guard])
      return back.length
    })
  })
}

/** Empties the log: merged rows can no longer be restored, nor their keys resolved. */
export async function forgetMerges(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: Pick<AdoptOptions, 'property'> = {},
): Promise<void> {
  checkOptions('forgetMerges()', options, PROPERTY)
  const declaration = findDeclaration(dataSource, entity, options.property)
  await withSession(dataSource, {}, {}, async (session) => {
    const { on } = await findTarget(declaration, session.query)
    await session.all(createLog(on))
    await session.query(forgetLog(on), [on.table.guard])
  })
}
