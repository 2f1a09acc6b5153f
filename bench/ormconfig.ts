import 'reflect-metadata'
import { DataSource } from 'typeorm'
import { NormalizedPage, withUniqueText } from './support'

/** For the import command, in the measurement of its memory. */
export default withUniqueText(
  new DataSource({
    type: 'postgres',
    url: process.env['BENCH_DATABASE_URL'] ?? '',
    entities: [NormalizedPage],
  }),
)
