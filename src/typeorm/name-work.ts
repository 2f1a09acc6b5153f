import type { EntityMetadata } from 'typeorm'
import type { Change } from '../sql/alter'
import { claimAllNames, releaseAllNames } from '../sql/name-fill'
import { notedHolder } from '../sql/name-removal'
import type { HolderTable } from '../sql/name-table'
import { nameTriggersOf } from '../sql/name-triggers'
import { refuseUnnormalized } from '../sql/rebuild'
import type { TriggerNote } from '../sql/trigger-set'
import { normalizerLabel, toNormalizer } from '../text/normalizer'
import { holderTable } from './name-tables'
import { type RowsChange, tableNames, type TriggerWork } from './registry'

/** What a name has that nothing normalizes. */
const NONE = normalizerLabel(toNormalizer(undefined))

/** What the table of an entity needs for its names, and what becomes of rows that are there. */
export function nameWork(metadata: EntityMetadata): TriggerWork {
  const holder = holderTable(metadata)
  return {
    set: nameTriggersOf(holder),
    rows: {
      ...refuseOtherNormalizers(holder, undefined),
      install: { up: [claimAllNames(holder)], down: [releaseAllNames(holder)] },
      // With the table go its names.
      created: { up: [], down: [releaseAllNames(holder)] },
      follow: (before) => follow(holder, before),
    },
    lookups: tableNames(metadata).map(({ table: rows, lookup: name, text }) => ({
      rows,
      name,
      column: text.column.databaseName,
    })),
  }
}

/** Names go with what is renamed, in either direction. */
function follow(holder: HolderTable, note: TriggerNote): RowsChange {
  const before = notedHolder(note, holder)
  if (!before || isSame(before, holder)) return {}
  if (keyTypes(before) !== keyTypes(holder)) {
    // Keys of another type are others: no name tells whose it was.
    return {
      ...refuseOtherNormalizers(holder, before),
      install: { up: [releaseAllNames(before), claimAllNames(holder)], down: [releaseAllNames(holder)] },
      dropped: { change: { up: [], down: [claimAllNames(before)] } },
    }
  }
  return {
    ...refuseOtherNormalizers(holder, before),
    install: { up: [claimAllNames(holder, before)], down: [] },
    dropped: { change: { up: [], down: [claimAllNames(before, holder)] } },
  }
}

const INTEGERS: ReadonlySet<string> = new Set(['smallint', 'bigint'])

const keyTypes = ({ primary }: HolderTable): string =>
  JSON.stringify(primary.map(({ type }) => (INTEGERS.has(type) ? 'integer' : type)))

/** Another policy is for the names that are given up from now on. */
function isSame(before: HolderTable, after: HolderTable): boolean {
  const key = ({ holder, primary, names }: HolderTable): string =>
    JSON.stringify([
      holder,
      primary.map(({ name, type }) => [name, type]),
      names.map(({ column, namespace, normalizer = NONE }) => [column, namespace, normalizer]),
    ])
  return key(before) === key(after)
}

/** The column of the same name, or one of the same namespace that is gone. */
function predecessor(
  before: HolderTable,
  after: HolderTable,
  column: string,
): HolderTable['names'][number] | undefined {
  const namespace = after.names.find((one) => one.column === column)?.namespace
  const isGone = (one: string): boolean => after.names.every((name) => name.column !== one)
  return (
    before.names.find((one) => one.column === column) ??
    before.names.find((one) => one.namespace === namespace && isGone(one.column))
  )
}

/** SQL cannot normalize as JavaScript does: a name that is not normalized is one that nobody finds. */
function refuseOtherNormalizers(holder: HolderTable, before: HolderTable | undefined): { readonly fill?: Change } {
  const primary = holder.primary.map(({ name }) => name)
  const refuse = (column: string, from: string, to: string): string[] =>
    to === NONE || to === from ? [] : [refuseUnnormalized({ rows: holder, primary }, { column, from, to })]
  const changes = holder.names.map(({ column, normalizer: to = NONE }) => {
    const from = (before && predecessor(before, holder, column))?.normalizer ?? NONE
    return { up: refuse(column, from, to), down: refuse(column, to, from) }
  })
  const [up, down] = [changes.flatMap((one) => one.up), changes.flatMap((one) => one.down)]
  return up.length + down.length === 0 ? {} : { fill: { up, down } }
}
