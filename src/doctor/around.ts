import type { EntityMetadata } from 'typeorm'
import type { TableState } from '../sql/catalog'
import type { Surroundings } from '../sql/doctor-catalog'
import { type DoctorFinding, findingOf } from './findings'

/** A transaction that is open for longer than this is reported. */
const OLD_SECONDS = 60

/** What a migration or the doctor meets around a table. */
export function findingsAround(
  metadata: EntityMetadata,
  { triggers }: TableState,
  around: Surroundings,
): DoctorFinding[] {
  const { oldestSeconds, partitions } = around
  const users = around.updateTriggers.filter((name) => triggers.every((one) => one.name !== name))
  const named = {
    'trigger.user': users,
    'replication.publication': around.publications,
    'replication.subscription': around.subscriptions,
    'table.inherits': around.relatives,
    'reference.undeclared': around.lookalikes,
  } as const
  const counted = {
    'rows.hidden': [around.hidesRows ? 1 : 0, undefined],
    'table.partitioned': [partitions, undefined],
    'transaction.old': [(oldestSeconds ?? 0) >= OLD_SECONDS ? 1 : 0, `open for ${oldestSeconds} s`],
  } as const
  const place = { entity: metadata.name, property: null }
  const all = [
    ...Object.entries(named).map(([code, objects]) => [code, objects.length, objects.join(', ')] as const),
    ...Object.entries(counted).map(([code, [count, detail]]) => [code, count, detail] as const),
  ]
  return all
    .filter(([, count]) => count > 0)
    .map(([code, count, detail]) =>
      findingOf(code as keyof typeof named | keyof typeof counted, place, {
        count,
        ...(detail === undefined ? {} : { detail }),
      }),
    )
}

/** What columns of other tables that refer to a table would be called (`page_id`, `pagesId`), in one spelling. */
export function referenceNames({ tableName, name, primaryColumns }: EntityMetadata): string[] {
  const [key, ...more] = primaryColumns
  if (!key || more.length > 0) return []
  const bases = [tableName, name].map(spelling)
  const all = bases.flatMap((base) => [base, base.replace(/s$/u, ''), base.replace(/ies$/u, 'y')])
  return [...new Set(all.map((base) => base + spelling(key.databaseName)))]
}

const spelling = (name: string): string => name.replaceAll(/[_\s]/gu, '').toLowerCase()
