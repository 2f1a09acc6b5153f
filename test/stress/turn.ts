import type { DataSource, QueryRunner } from 'typeorm'
import { isExpected, outcomeOf } from './outcome'
import type { Ledger } from './ledger'
import type { Random } from './random'
import type { Action, Level, RawClient, Session } from './session'
import { isScoped, type Subject } from './subject'

/** One of those who write at the same time: a connection of its own, and its DataSource's pool. */
export interface Client {
  readonly number: number
  readonly dataSource: DataSource
  readonly queryRunner: QueryRunner
  readonly raw: RawClient
  readonly random: Random
  readonly ledger: Ledger
  readonly subjects: readonly Subject[]
  /** Of its transactions. */
  readonly levels: readonly Level[]
  /** Outside of transactions. */
  readonly level: Level
  readonly choose: (random: Random) => Action
}

/** Does one thing, alone or in a transaction with others. */
export async function takeTurn(client: Client): Promise<void> {
  await (client.random.chance(0.5) ? alone(client) : inTransaction(client))
}

async function alone(client: Client): Promise<void> {
  const session = sessionOf(client)
  await attempt(session, chooseAction(client))
}

interface Choice {
  readonly action: Action
  readonly subject: Subject
}

function chooseAction({ random, subjects, choose }: Client): Choice {
  const subject = random.pick(subjects)
  for (;;) {
    const action = choose(random)
    if (!action.scoped || isScoped(subject)) return { action, subject }
  }
}

/** @param level of the transaction, if there is one */
function sessionOf(client: Client, level?: Level): Session {
  const { number, dataSource, queryRunner, raw, random, ledger } = client
  return {
    client: number,
    manager: level ? queryRunner.manager : dataSource.manager,
    raw,
    inTransaction: level !== undefined,
    level: level ?? client.level,
    random,
    ledger,
    sql: async (text) => {
      ledger.event(number, text)
      return await raw.query<Record<string, unknown>>(text)
    },
  }
}

/** Runs an action, counts how it ended, and says so. */
async function attempt(session: Session, { action, subject }: Choice): Promise<string> {
  const { ledger, client } = session
  let outcome = 'ok'
  try {
    await action.run(session, subject)
  } catch (error) {
    outcome = outcomeOf(error)
    if (!isExpected(action, outcome)) {
      const { message } = error instanceof Error ? error : { message: '' }
      ledger.event(client, `${action.name} → ${outcome}`)
      ledger.violate(`client ${client}: ${action.name} failed with ${outcome}: ${message}`)
    }
  }
  ledger.event(client, `${action.name} → ${outcome}`)
  ledger.count(action.name, outcome)
  return outcome
}

const MOST_ACTIONS = 4
/** Most refusals are undone by a savepoint, or hardly a transaction would come to its COMMIT. */
const SAVEPOINT_SHARE = 0.6

async function inTransaction(client: Client): Promise<void> {
  const { random, queryRunner, raw, ledger, number } = client
  const level = random.pick(client.levels)
  await queryRunner.startTransaction(level)
  ledger.event(number, `BEGIN ${level}`)
  // Some give up waiting: a lock that is waited for in vain is a way out of a statement like any other.
  if (random.chance(0.1)) await raw.query(`SET LOCAL lock_timeout = '10ms'`)
  let usable = true
  for (let left = 1 + random.int(MOST_ACTIONS); left > 0 && usable; left -= 1) usable = await step(client, level)
  const commit = random.chance(0.8)
  await end(client, usable && commit)
}

/** One action of a transaction, perhaps in a savepoint. False where the transaction is aborted. */
async function step(client: Client, level: Level): Promise<boolean> {
  const { random, raw, ledger } = client
  const session = sessionOf(client, level)
  const choice = chooseAction(client)
  if (!random.chance(SAVEPOINT_SHARE)) return (await attempt(session, choice)) === 'ok'
  await session.sql('SAVEPOINT stress')
  const outcome = await attempt(session, choice)
  // What lost against others is lost with its snapshot; a refusal is undone by the savepoint.
  if (['40001', '40P01', 'TRANSACTION_ABORTED'].includes(outcome)) return false
  const back = outcome !== 'ok' || random.chance(0.25)
  await session.sql(back ? 'ROLLBACK TO SAVEPOINT stress' : 'RELEASE SAVEPOINT stress')
  ledger.add(back ? 'savepoints rolled back' : 'savepoints released')
  await raw.query('SELECT')
  return true
}

async function end({ queryRunner, raw, ledger, number }: Client, commit: boolean): Promise<void> {
  try {
    if (!commit) {
      await queryRunner.rollbackTransaction()
      ledger.add('transactions rolled back')
      return
    }
    // COMMIT of an aborted transaction is a ROLLBACK that says nothing; this says it.
    await raw.query('SELECT')
    await queryRunner.commitTransaction()
    ledger.add('transactions committed')
  } catch (error) {
    const outcome = outcomeOf(error)
    ledger.count('COMMIT', outcome)
    if (outcome !== '40001') ledger.violate(`COMMIT failed with ${outcome}`)
    if (queryRunner.isTransactionActive) await queryRunner.rollbackTransaction()
  }
  ledger.event(number, commit ? 'COMMIT' : 'ROLLBACK')
}
