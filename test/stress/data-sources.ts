import { DataSource } from 'typeorm'
import { findOneByText } from '../../src'
import { OnceToken } from '../../src/once'
import {
  PARTITIONED,
  StressLink,
  StressNumbered,
  StressPage,
  StressParts,
  StressRun,
  StressScoped,
  StressSoft,
} from './entities'
import { WRITERS } from './trouble'
import { type Level, LEVELS } from '../support/sessions'

/** Settings of every connection. A deadlock is found at once; a statement that hangs is a violation, not a long wait. */
const SETTINGS: Readonly<Record<string, string>> = {
  deadlock_timeout: '20ms',
  // At SERIALIZABLE a sequential scan locks the whole table, and nearly everybody would lose.
  enable_seqscan: 'off',
  statement_timeout: '60s',
  idle_in_transaction_session_timeout: '120s',
}

/**
 * One DataSource for each level that its connections have by default. The tables are made by the first, as a user's
 * would be, and each has seen its guard: what a mutation takes out later is not noticed by it.
 */
export async function openDataSources(url: string, poolSize: number): Promise<Readonly<Record<Level, DataSource>>> {
  const opened: DataSource[] = []
  for (const level of LEVELS) {
    const settings = { ...SETTINGS, default_transaction_isolation: level.toLowerCase() }
    const options = Object.entries(settings).map(
      ([name, value]) => `-c ${name}=${value.replaceAll(' ', String.raw`\ `)}`,
    )
    const dataSource = new DataSource({
      type: 'postgres',
      url,
      poolSize,
      applicationName: WRITERS,
      entities: [StressPage, StressScoped, StressParts, StressSoft, StressLink, StressNumbered, StressRun, OnceToken],
      // What an earlier run left, perhaps a guard with a part taken out, would be taken for whole.
      dropSchema: opened.length === 0,
      extra: { options: options.join(' ') },
    })
    await dataSource.initialize()
    if (opened.length === 0) {
      await dataSource.query(PARTITIONED)
      await dataSource.synchronize()
    }
    opened.push(dataSource)
    await findOneByText(dataSource.manager, StressPage, { text: 'none' })
    await findOneByText(dataSource.manager, StressScoped, { text: 'none', tenant: 1 })
    await findOneByText(dataSource.manager, StressParts, { text: 'none', tenant: 1 })
    await findOneByText(dataSource.manager, StressSoft, { text: 'none' })
    await findOneByText(dataSource.manager, StressLink, { text: 'none' })
  }
  const [committed, repeatable, serializable] = opened
  if (!committed || !repeatable || !serializable) throw new TypeError('There is one DataSource for each level.')
  return { 'READ COMMITTED': committed, 'REPEATABLE READ': repeatable, SERIALIZABLE: serializable }
}
