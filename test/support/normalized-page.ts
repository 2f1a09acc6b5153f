import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { UniqueText } from '../../src'
import { url } from '../../src/text'

/** A page with a title whose URL is normalized, for test files that need no other column. */
@Entity()
export class Page {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText({ normalize: url() }) url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}
