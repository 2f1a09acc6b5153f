import type { DataSource, QueryRunner } from 'typeorm'
import { SQLSTATE } from '../../src/sql/sqlstate'
import { isExpected, outcomeOf } from './outcome'
import type { Journal } from './journal'
import type { Random } from './random'
import type { Level } from '../support/sessions'
import type { Action, RawClient, Writer } from './action'
import { isScoped, isSoft, type Subject } from './subject'

/** One of those who write at the same time: a connection of its own, and its DataSource's pool. */
export interface Client {
  readonly number: number
  readonly dataSource: DataSource
  readonly queryRunner: QueryRunner
  readonly raw: RawClient
  readonly random: Random
  readonly journal: Journal
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
  const writer = writerOf(client)
  await attempt(writer, chooseAction(client))
}

interface Choice {
  readonly action: Action
  readonly subject: Subject
}

function chooseAction({ random, subjects, choose }: Client): Choice {
  const subject = random.pick(subjects)
  for (;;) {
    const action = choose(random)
    if ((!action.scoped || isScoped(subject)) && (!action.soft || isSoft(subject))) return { action, subject }
  }
}

interface Transaction {
  readonly level: Level
  readonly isImpatient: boolean
}

/** @param transaction if there is one */
function writerOf(client: Client, transaction?: Transaction): Writer {
  const { number, dataSource, queryRunner, raw, random, journal } = client
  return {
    client: number,
    manager: transaction ? queryRunner.manager : dataSource.manager,
    raw,
    inTransaction: transaction !== undefined,
    isImpatient: transaction?.isImpatient ?? false,
    level: transaction?.level ?? client.level,
    random,
    journal,
    sql: async (text) => {
      journal.event(number, text)
      return await raw.query<Record<string, unknown>>(text)
    },
  }
}

/** Runs an action, counts how it ended, and says so. */
async function attempt(writer: Writer, { action, subject }: Choice): Promise<string> {
  const { journal, client } = writer
  let outcome = 'ok'
  try {
    await action.run(writer, subject)
  } catch (error) {
    outcome = outcomeOf(error)
    const gaveUp = writer.isImpatient && outcome === SQLSTATE.queryCanceled
    if (!journal.troubled && !gaveUp && !isExpected(action, outcome)) {
      const { message } = error instanceof Error ? error : { message: '' }
      journal.event(client, `${action.name} → ${outcome}`)
      journal.violate(`client ${client}: ${action.name} failed with ${outcome}: ${message}`)
    }
  }
  journal.event(client, `${action.name} → ${outcome}`)
  journal.count(action.name, outcome)
  return outcome
}

const MOST_ACTIONS = 4
/** Most refusals are undone by a savepoint, or hardly a transaction would come to its COMMIT. */
const SAVEPOINT_SHARE = 0.6

async function inTransaction(client: Client): Promise<void> {
  const { random, queryRunner, raw, journal, number } = client
  const level = random.pick(client.levels)
  await queryRunner.startTransaction(level)
  journal.event(number, `BEGIN ${level}`)
  // Some give up waiting: a lock that is waited for in vain is a way out of a statement like any other.
  const isImpatient = random.chance(0.1)
  if (isImpatient) await raw.query(`SET LOCAL lock_timeout = '10ms'`)
  let usable = true
  for (let left = 1 + random.int(MOST_ACTIONS); left > 0 && usable; left -= 1)
    usable = await step(client, { level, isImpatient })
  const commit = random.chance(0.8)
  await end(client, usable && commit)
}

/** One action of a transaction, perhaps in a savepoint. False where the transaction is aborted. */
async function step(client: Client, transaction: Transaction): Promise<boolean> {
  const { random, raw, journal } = client
  const writer = writerOf(client, transaction)
  const choice = chooseAction(client)
  if (!random.chance(SAVEPOINT_SHARE)) return (await attempt(writer, choice)) === 'ok'
  await writer.sql('SAVEPOINT stress')
  const outcome = await attempt(writer, choice)
  // What lost against others is lost with its snapshot; a refusal is undone by the savepoint.
  if (['40001', '40P01', 'TRANSACTION_ABORTED'].includes(outcome)) return false
  const back = outcome !== 'ok' || random.chance(0.25)
  await writer.sql(back ? 'ROLLBACK TO SAVEPOINT stress' : 'RELEASE SAVEPOINT stress')
  journal.add(back ? 'savepoints rolled back' : 'savepoints released')
  await raw.query('SELECT')
  return true
}

async function end({ queryRunner, raw, journal, number }: Client, commit: boolean): Promise<void> {
  try {
    if (!commit) {
      await queryRunner.rollbackTransaction()
      journal.add('transactions rolled back')
      return
    }
    // COMMIT of an aborted transaction is a ROLLBACK that says nothing; this says it.
    await raw.query('SELECT')
    await queryRunner.commitTransaction()
    journal.add('transactions committed')
  } catch (error) {
    const outcome = outcomeOf(error)
    journal.count('COMMIT', outcome)
    if (outcome !== '40001' && !journal.troubled) journal.violate(`COMMIT failed with ${outcome}`)
    if (queryRunner.isTransactionActive) await queryRunner.rollbackTransaction()
  }
  journal.event(number, commit ? 'COMMIT' : 'ROLLBACK')
}
