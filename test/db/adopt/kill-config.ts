import { withUniqueText } from '../../../src'
import { DataSource } from 'typeorm'
import { pageOf } from './stage'

/** The DataSource of the command that `kills.test.ts` starts and ends. */
const dataSource = new DataSource({
  type: 'postgres',
  url: process.env['DATABASE_URL'] ?? '',
  entities: [pageOf()],
  extra: { application_name: 'adopts' },
})
export const source: DataSource = withUniqueText(dataSource)
