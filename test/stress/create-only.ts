import type { EntityManager } from 'typeorm'
import { findOrCreate, findOrCreateMany } from '../../src'
import { literal } from '../../src/sql/identifier'
import { outcomeOf } from './outcome'
import type { RawClient } from './action'
import { inputOf, isScoped, type Key, type Subject } from './subject'
import type { Client } from './turn'

/** What one caller was told about one text. */
interface Claim {
  readonly key: Key
  readonly id: number
  readonly created: boolean
}

type Claims = Map<Subject, Claim[]>

/** Losing more often in a row than this is no bad luck any more. */
const MOST_TRIES = 500

/**
 * Rounds in which find-or-create alone writes: every client asks for every text, one by one, in bulk, in transactions
 * that commit or roll back; at least one round, however little time is left. Of all callers exactly one may have created a text, and all must know the same row.
 */
export async function createOnly(clients: readonly Client[]): Promise<void> {
  const [first] = clients
  if (!first) return
  const { journal, subjects, raw } = first
  do {
    for (const { relation } of subjects) await raw.query(`TRUNCATE ${relation} CASCADE`)
    const claims: Claims = new Map(subjects.map((subject) => [subject, []]))
    await Promise.all(
      clients.map(async (client) => {
        for (const subject of subjects) await askForAll(client, subject, claims.get(subject) ?? [])
      }),
    )
    if (journal.violations.length > 0) return
    for (const subject of subjects) await compare(first, subject, claims.get(subject) ?? [])
    journal.add('rounds of find-or-create alone')
  } while (journal.running)
}

async function askForAll(client: Client, subject: Subject, claims: Claim[]): Promise<void> {
  const { random, journal } = client
  const keys = random.sample(subject.keys, subject.keys.length)
  while (keys.length > 0 && journal.violations.length === 0) {
    const some = keys.splice(0, 1 + random.int(8))
    const way = random.pick(['alone', 'in a transaction', 'in a transaction'] as const)
    claims.push(...(await persist(client, subject, { keys: some, way })))
  }
}

interface Request {
  readonly keys: readonly Key[]
  readonly way: 'alone' | 'in a transaction'
}

/** Asks until it is answered, as a user whose transaction was aborted would. */
async function persist(client: Client, subject: Subject, { keys, way }: Request): Promise<Claim[]> {
  const { journal } = client
  const claims: Claim[] = []
  const unanswered = (): Key[] => keys.filter((key) => !claims.some((claim) => claim.key === key))
  for (let tries = 1; unanswered().length > 0 && journal.violations.length === 0; tries += 1) {
    try {
      if (way === 'alone') await ask(client, subject, unanswered(), { manager: client.dataSource.manager, claims })
      else claims.push(...(await transact(client, subject, keys)))
      journal.count(`find-or-create alone, ${way}`, 'ok')
    } catch (error) {
      const outcome = outcomeOf(error)
      journal.count(`find-or-create alone, ${way}`, outcome)
      const lost = ['TRANSACTION_ABORTED', 'ATTEMPTS_EXHAUSTED', '40001', '40P01'].includes(outcome)
      if (!lost || tries === MOST_TRIES) journal.violate(`find-or-create ${way} failed with ${outcome} in try ${tries}`)
    }
  }
  journal.add('answers to find-or-create alone', claims.length)
  return claims
}

interface Asking {
  readonly manager: EntityManager
  /** Takes the answers, those too that come beside an error: outside a transaction their rows are stored. */
  readonly claims: Claim[]
}

/** Asks for all of the texts in one call, or for the first. */
async function ask(client: Client, subject: Subject, keys: readonly Key[], asking: Asking): Promise<void> {
  const { random } = client
  const { manager, claims } = asking
  const [key] = keys
  if (!key) return
  if (keys.length === 1 || random.chance(0.5)) {
    const result = await findOrCreate(manager, subject.entity, inputOf(subject, key, random))
    claims.push(claimOf(client, subject, key, result))
    return
  }
  const inputs = keys.map((one) => inputOf(subject, one, random))
  const results = await findOrCreateMany(manager, subject.entity, inputs)
  const errors: unknown[] = []
  for (const [index, one] of keys.entries()) {
    const result = results[index]
    if (result && 'entity' in result) claims.push(claimOf(client, subject, one, result))
    else errors.push(result?.error)
  }
  if (errors.length > 0) throw errors[0]
}

function claimOf(
  { journal }: Client,
  { table }: Subject,
  key: Key,
  { entity, created }: { readonly entity: { readonly id: number; readonly text: string }; readonly created: boolean },
): Claim {
  if (entity.text !== key.text) journal.violate(`a caller asked for "${key.text}" and got "${entity.text}"`)
  if (created) journal.rowCreated(table.table, entity.id)
  return { key, id: entity.id, created }
}

/** All of the keys in one transaction; what was said in one that is rolled back does not count. */
async function transact(client: Client, subject: Subject, keys: readonly Key[]): Promise<Claim[]> {
  const { queryRunner, random } = client
  const claims: Claim[] = []
  await queryRunner.startTransaction(random.pick(client.levels))
  try {
    while (claims.length < keys.length) {
      await ask(client, subject, keys.slice(claims.length), { manager: queryRunner.manager, claims })
    }
    if (random.chance(0.2)) return []
    await queryRunner.commitTransaction()
    return claims
  } finally {
    if (queryRunner.isTransactionActive) await queryRunner.rollbackTransaction()
  }
}

/** What the callers were told against what the table holds. */
async function compare({ raw, journal }: Client, subject: Subject, claims: readonly Claim[]): Promise<void> {
  const rows = await rowsOf(raw, subject)
  if (rows.length !== subject.keys.length) {
    journal.violate(`${rows.length} rows of ${subject.relation} for ${subject.keys.length} texts`)
  }
  for (const { text, tenant } of subject.keys) {
    const row = rows.find((one) => one.text === text && one.tenant === tenant)
    const told = claims.filter(({ key }) => key.text === text && key.tenant === tenant)
    const created = told.filter((claim) => claim.created)
    if (!row || told.some(({ id }) => id !== row.id)) journal.violate(`callers were told different rows of "${text}"`)
    if (created.length !== 1) journal.violate(`${created.length} callers were told that they had created "${text}"`)
  }
  journal.add('texts created exactly once', rows.length)
}

async function rowsOf(raw: RawClient, subject: Subject): Promise<{ id: number; text: string; tenant: number }[]> {
  const tenant = isScoped(subject) ? 'tenant' : literal('0')
  const { rows } = await raw.query<{ id: number; text: string; tenant: number }>(
    `SELECT id, text, ${tenant}::integer AS tenant FROM ${subject.relation}`,
  )
  return rows
}
